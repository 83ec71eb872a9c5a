"""What runs a Plan."""
