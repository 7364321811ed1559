"""Trainers that are a command and a reader: Tunebench starts a program of others, and reads what the program prints and writes."""
