package report

// Natural is natural.
func Natural(a, b string) int { return natural(a, b) }
