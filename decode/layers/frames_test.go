package layers_test

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/csigscope/csigscope/capture/livetest"
)

// frames returns the golden frames and the fuzz corpora of package decode.
func frames(t testing.TB) [][]byte {
	t.Helper()
	all := goldens(t)
	for _, path := range glob(t, "..", "testdata", "fuzz", "*", "*") {
		if frame, ok := firstBytes(read(t, path)); ok {
			all = append(all, frame)
		}
	}
	return all
}

func goldens(t testing.TB) (all [][]byte) {
	t.Helper()
	for _, f := range livetest.ReadHex(t, filepath.Join("..", "testdata", "frames")) {
		all = append(all, f.Data)
	}
	return all
}

func glob(t testing.TB, elem ...string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(elem...))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no files at %s: %v", filepath.Join(elem...), err)
	}
	return paths
}

func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// firstBytes returns the first argument of a fuzz corpus file, when it is a []byte.
func firstBytes(text string) ([]byte, bool) {
	for line := range strings.Lines(text) {
		quoted, ok := strings.CutPrefix(strings.TrimSpace(line), "[]byte(")
		if !ok {
			continue
		}
		s, err := strconv.Unquote(strings.TrimSuffix(quoted, ")"))
		return []byte(s), err == nil
	}
	return nil, false
}

// etherTypes are those known to either decoder.
var etherTypes = []uint16{
	0x9900, 0x88b5, 0x88b6, wideIETFTPID, 0x8100, 0x88a8, 0x9100, 0x88e5,
	0x0800, 0x86dd, 0x0806, 0x8847, 0x6558, 0x0040,
}

// mutate changes a copy of the frame once to three times.
func mutate(rng *rand.Rand, frame []byte) []byte {
	frame = slices.Clone(frame)
	for range 1 + rng.UintN(3) {
		if len(frame) < 2 {
			return frame
		}
		at := rng.IntN(len(frame) - 1)
		switch rng.UintN(6) {
		case 0:
			frame[at] ^= 1 << rng.UintN(8)
		case 1:
			frame[at] = byte(rng.Uint32())
		case 2:
			frame = frame[:at+1]
		case 3:
			frame = slices.Delete(frame, at, min(at+1+rng.IntN(4), len(frame)))
		case 4:
			binary.BigEndian.PutUint16(frame[at:], etherTypes[rng.IntN(len(etherTypes))])
		default:
			frame = insertL2(rng, frame)
		}
	}
	return frame
}

// insertL2 puts a tag or a VLAN tag before the first EtherType: the most important mutation here,
// and one that random changes seldom make.
func insertL2(rng *rand.Rand, frame []byte) []byte {
	const etherType = 12
	if len(frame) < etherType {
		return frame
	}
	id := etherTypes[rng.IntN(6)]
	header := binary.BigEndian.AppendUint16(nil, id)
	n := 2
	if id == 0x88b6 || id == wideIETFTPID {
		n = 6
	}
	for range n {
		header = append(header, byte(rng.Uint32()))
	}
	return slices.Insert(frame, etherType, header...)
}
