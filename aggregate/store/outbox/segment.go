package outbox

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// segment is a file of records of one class. Numbers ascend over all classes and are
// never used twice.
type segment struct {
	number uint64
	first  uint64 // no record in it comes before
	next   uint64 // first of the segment after it: no record in it is that or later; 0 for none
	before uint64 // weight of all confirmed records of the class before it
	end    int64  // of what may be read
	size   int64  // of the file, as far as is known
	begun  time.Time

	ackedAt time.Time // when all of it was acknowledged in this process
}

const segmentSuffix = ".seg"

// segmentName is CLASS-NUMBER-FIRST.seg.
func segmentName(class string, number, first uint64) string {
	return fmt.Sprintf("%s-%012d-%020d%s", class, number, first, segmentSuffix)
}

// parseSegmentName tells class, number and first of a segment by its name.
func parseSegmentName(name string) (class string, number, first uint64, ok bool) {
	body, ok := strings.CutSuffix(name, segmentSuffix)
	parts := strings.Split(body, "-")
	if !ok || len(parts) != 3 {
		return "", 0, 0, false
	}
	number, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return "", 0, 0, false
	}
	first, err = strconv.ParseUint(parts[2], 10, 64)
	return parts[0], number, first, err == nil && first > 0
}

func sortSegments(list []segment) {
	slices.SortFunc(list, func(a, b segment) int { return cmp.Compare(a.number, b.number) })
}

// atOrAfter is the index of the first segment with that number or a later one.
func atOrAfter(list []segment, number uint64) int {
	i, _ := slices.BinarySearchFunc(list, number, func(s segment, n uint64) int { return cmp.Compare(s.number, n) })
	return i
}
