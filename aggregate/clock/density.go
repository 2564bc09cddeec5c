package clock

// density is how many rests there are of each length, smoothed.
type density struct {
	low, bin float64 // of the first bin
	counts   []float64
	scratch  []float64
}

const (
	// binsOf a width: the smoothing is so many times finer.
	binsOf = 4
	// margin is bins on either side, which smoothing reaches.
	margin = 8
)

// fill counts the rests from low to high, smoothed by a kernel of about the width. It takes
// memory for four numbers a width.
func (d *density) fill(rests []float64, low, high, width float64) {
	d.low, d.bin = low, width/binsOf
	n := int((high-low)/d.bin) + 1 + 2*margin
	if cap(d.counts) < n {
		d.counts, d.scratch = make([]float64, n), make([]float64, n)
	}
	d.counts, d.scratch = d.counts[:n], d.scratch[:n]
	clear(d.counts)
	for _, v := range rests { // also those next to the ends, which are no edges of the density
		if at := (v-low)/d.bin + margin; at >= 0 && at < float64(n) {
			d.counts[int(at)]++
		}
	}
	for range 3 { // three times a box is nearly a bell
		d.smooth()
	}
}

func (d *density) at(rest float64) int { return int((rest-d.low)/d.bin) + margin }

// smooth spreads each count over five bins.
func (d *density) smooth() {
	const half = binsOf / 2
	var sum float64
	for i := range d.counts {
		sum += d.counts[i]
		if i > 2*half {
			sum -= d.counts[i-2*half-1]
		}
		if i >= half {
			d.scratch[i-half] = sum / (2*half + 1)
		}
	}
	d.counts, d.scratch = d.scratch, d.counts
	clear(d.counts[len(d.counts)-half:])
}

// score is how fast the density falls at a rest, as a share of it per ns: positive where
// shorter rests are likelier. The one that is added is for where there are few.
func (d *density) score(rest float64) float64 {
	i := d.at(rest)
	return (d.counts[i-1] - d.counts[i+1]) / (2 * d.bin) / (d.counts[i] + 1)
}

// luck is the mean square of how much smoothed counts two bins apart differ where rests are
// equally likely everywhere, as a share of a count.
const luck = 490. / 15625

// information is how much one rest tells of where all of them lie: the mean of the square of
// the score, per ns squared, less what it would be by luck. signal is the share of the score
// that is not luck.
func (d *density) information() (signal, information float64) {
	var all, net, n float64
	for i := margin; i < len(d.counts)-margin; i++ {
		fall, count := d.counts[i-1]-d.counts[i+1], d.counts[i]
		all += fall * fall / (count + 1)
		net += (fall*fall - luck*count) / (count + 1)
		n += count
	}
	if net <= 0 {
		return 0, 0
	}
	return net / all, net / (4 * d.bin * d.bin) / n
}
