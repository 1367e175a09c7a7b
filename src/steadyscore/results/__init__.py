"""What a result is made of: figures with their intervals, notes, and tables that every renderer prints."""
