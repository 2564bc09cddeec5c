package emitter

import "math/bits"

// random is the splitmix64 generator: one word of state, so that every flow owns
// one and the numbers that a flow draws do not depend on other flows.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	return mix(uint64(*r))
}

// below is a number in [0, n).
func (r *random) below(n uint64) uint64 {
	high, _ := bits.Mul64(r.next(), n)
	return high
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// stream derives an independent generator from a seed and a list of numbers.
func stream(seed uint64, numbers ...uint64) random {
	h := mix(seed + 0x9e3779b97f4a7c15)
	for _, n := range numbers {
		h = mix(h ^ mix(n+0x9e3779b97f4a7c15))
	}
	return random(h)
}
