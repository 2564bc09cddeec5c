package fabric

// MaxDerived is the maximum number of derived groups.
const MaxDerived = maxDerived
