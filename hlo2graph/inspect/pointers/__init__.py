"""What a call costs by strategy for arrays that move: measured, compared, told and drawn."""
