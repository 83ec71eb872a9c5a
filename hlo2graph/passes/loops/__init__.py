"""What is done to loops and branches before their bodies are fused."""
