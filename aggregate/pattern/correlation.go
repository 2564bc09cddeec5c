package pattern

import (
	"math"
	"math/bits"
	"math/cmplx"
	"slices"
)

// ranked replaces values by their ranks, equal ones by their mean rank, and subtracts the mean and
// a linear trend: a burst a thousand times higher than the others counts as the largest, and no
// more. Unknown values (NaN) become 0, which correlates with nothing.
func ranked(values []float64) []float64 {
	order := make([]int, 0, len(values))
	for i, v := range values {
		if !math.IsNaN(v) {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		switch {
		case values[a] < values[b]:
			return -1
		case values[a] > values[b]:
			return 1
		}
		return 0
	})
	out := make([]float64, len(values))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && values[order[j]] == values[order[i]] {
			j++
		}
		for _, at := range order[i:j] {
			out[at] = float64(i+j) / 2
		}
		i = j
	}
	detrend(out, order)
	return out
}

// detrend subtracts the least-squares line from the values at the indices.
func detrend(values []float64, at []int) {
	n := float64(len(at))
	var sumX, sumY float64
	for _, i := range at {
		sumX, sumY = sumX+float64(i), sumY+values[i]
	}
	meanX, meanY := sumX/n, sumY/n
	var covered, spread float64
	for _, i := range at {
		dx := float64(i) - meanX
		covered, spread = covered+dx*(values[i]-meanY), spread+dx*dx
	}
	slope := 0.0
	if spread > 0 {
		slope = covered / spread
	}
	for _, i := range at {
		values[i] -= meanY + slope*(float64(i)-meanX)
	}
}

// autocorrelate returns the correlation of a series in parts with itself k windows later, for lags
// k from 0 to most, each over the pairs within its parts, so that it does not fall off with the
// lag. Some part must be longer than most. It returns nil if the series is constant.
func autocorrelate(parts [][]float64, most int) []float64 {
	out := make([]float64, most+1)
	sum, total := 0.0, 0
	for _, p := range parts {
		sum, total = sum+power(p), total+len(p)
	}
	if sum == 0 {
		return nil
	}
	for _, p := range parts {
		addProducts(out[:min(len(out), len(p))], p)
	}
	for k := range out {
		out[k] *= float64(total) / sum / float64(pairs(parts, k))
	}
	return out
}

// pairs returns the number of pairs of windows at that lag within the parts.
func pairs(parts [][]float64, lag int) (n int) {
	for _, p := range parts {
		n += max(len(p)-lag, 0)
	}
	return n
}

func power(values []float64) (sum float64) {
	for _, v := range values {
		sum += v * v
	}
	return sum
}

// addProducts adds the sums of values[i]*values[i+k] over i to out[k].
func addProducts(out, values []float64) {
	if len(out) == 0 {
		return
	}
	size := 1 << bits.Len(uint(2*len(values)-1))
	x := make([]complex128, size)
	for i, v := range values {
		x[i] = complex(v, 0)
	}
	transform(x, false)
	for i := range x {
		x[i] *= cmplx.Conj(x[i])
	}
	transform(x, true)
	for k := range out {
		out[k] += real(x[k]) / float64(size)
	}
}

// transform returns the fast Fourier transform in place (radix 2), unscaled; len(x) is a power
// of 2.
func transform(x []complex128, inverse bool) {
	n := len(x)
	shift := 64 - bits.Len(uint(n-1))
	for i := range x {
		if j := int(bits.Reverse64(uint64(i)) >> shift); n > 1 && j > i {
			x[i], x[j] = x[j], x[i]
		}
	}
	turn := -2 * math.Pi
	if inverse {
		turn = -turn
	}
	roots := make([]complex128, n/2)
	for i := range roots {
		roots[i] = cmplx.Rect(1, turn*float64(i)/float64(n))
	}
	for half := 1; half < n; half *= 2 {
		stride := n / (2 * half)
		for start := 0; start < n; start += 2 * half {
			for i := range half {
				even, odd := x[start+i], x[start+i+half]*roots[i*stride]
				x[start+i], x[start+i+half] = even+odd, even-odd
			}
		}
	}
}
