package fabric

import "strconv"

// speedLabel is a speed in kbit/s as it stands in names: "100G", exact.
func speedLabel(kbps uint64) string {
	switch {
	case kbps >= 1e6:
		return strconv.FormatFloat(float64(kbps)/1e6, 'f', -1, 64) + "G"
	case kbps >= 1e3:
		return strconv.FormatFloat(float64(kbps)/1e3, 'f', -1, 64) + "M"
	}
	return strconv.FormatUint(kbps, 10) + "k"
}
