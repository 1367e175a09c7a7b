"""Studies beside the audit: attacks, width, variance, teachers, planning, and the instrument tested on itself."""
