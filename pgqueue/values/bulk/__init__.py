"""Operations on many jobs: which jobs, which operation, and what became of them."""
