"""What shared code may know about hardware: targets, chips and capabilities.

What enters: the `target=` a program names and the fact tables of the target folders. What leaves:
`Target` values that passes ask for capabilities and capacities, never for names.
"""
