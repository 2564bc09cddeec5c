package query

import (
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"

	"github.com/csigscope/csigscope/aggregate"
	"github.com/csigscope/csigscope/aggregate/fabric"
)

// overflowColor is grey: the row stands for no place in the network.
const overflowColor = "#8a8f98"

// goldenTurn spaces consecutive numbers as far apart on a circle as can be done
// without knowing how many there will be.
const goldenTurn = 0.6180339887498949

// Color is the colour of a location as #rrggbb. It is a function of the names
// alone, so that a location looks the same in every window, report and run. The
// hue comes from the device, numbered devices of one family far apart; ports of a
// device share its hue and differ in lightness; the stage shifts chroma.
func Color(l fabric.Location) string {
	if l.ID == aggregate.OverflowLocation {
		return overflowColor
	}
	device, port := l.Device, strings.TrimPrefix(l.Name, l.Device)
	if device == "" {
		device, port = l.Name, ""
	}
	family, number := splitNumber(device)
	hue := turn(unit(family) + float64(number)*goldenTurn)
	portFamily, portNumber := splitNumber(port)
	shade := turn(unit(portFamily) + float64(portNumber)*goldenTurn)
	chroma := 0.12 + 0.05*unit(l.Stage)
	return oklch(0.55+0.24*shade, chroma, hue)
}

// splitNumber cuts the digits off the end of a name.
func splitNumber(name string) (family string, number int) {
	end := len(strings.TrimRight(name, "0123456789"))
	number, err := strconv.Atoi(name[end:])
	if err != nil {
		return name, 0
	}
	return name[:end], number
}

// unit maps a text to [0, 1).
func unit(s string) float64 {
	h := fnv.New64a()
	h.Write([]byte(s))
	// The last bytes of short texts hardly reach FNV's upper bits.
	x := h.Sum64()
	x ^= x >> 32
	x *= 0x9e3779b97f4a7c15
	return float64(x>>11) / (1 << 53)
}

func turn(x float64) float64 { return x - math.Floor(x) }

// oklch converts lightness 0..1, chroma and hue (in turns) of the OKLCH space to
// sRGB. Colours outside sRGB lose chroma rather than change hue.
func oklch(lightness, chroma, hue float64) string {
	sin, cos := math.Sincos(2 * math.Pi * hue)
	for ; chroma > 0; chroma -= 0.005 {
		if rgb, ok := oklabToRGB(lightness, chroma*cos, chroma*sin); ok {
			return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2])
		}
	}
	rgb, _ := oklabToRGB(lightness, 0, 0)
	return fmt.Sprintf("#%02x%02x%02x", rgb[0], rgb[1], rgb[2])
}

func oklabToRGB(lightness, a, b float64) (rgb [3]uint8, inGamut bool) {
	l := cube(lightness + 0.3963377774*a + 0.2158037573*b)
	m := cube(lightness - 0.1055613458*a - 0.0638541728*b)
	s := cube(lightness - 0.0894841775*a - 1.2914855480*b)
	linear := [3]float64{
		4.0767416621*l - 3.3077115913*m + 0.2309699292*s,
		-1.2684380046*l + 2.6097574011*m - 0.3413193965*s,
		-0.0041960863*l - 0.7034186147*m + 1.7076147010*s,
	}
	inGamut = true
	for i, v := range linear {
		if v < -1e-4 || v > 1+1e-4 {
			inGamut = false
		}
		v = min(max(v, 0), 1)
		if v <= 0.0031308 {
			v *= 12.92
		} else {
			v = 1.055*math.Pow(v, 1/2.4) - 0.055
		}
		rgb[i] = uint8(math.Round(255 * v))
	}
	return rgb, inGamut
}

func cube(x float64) float64 { return x * x * x }
