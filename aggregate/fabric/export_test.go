package fabric

// MaxDerived is how many groups addresses may make.
const MaxDerived = maxDerived
