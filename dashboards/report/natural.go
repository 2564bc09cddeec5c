package report

import (
	"cmp"
	"strings"
	"unicode"
)

// natural compares names as people count: rack2 comes before rack10.
func natural(a, b string) int {
	for a != "" && b != "" {
		wordA, numberA, restA := head(a)
		wordB, numberB, restB := head(b)
		if c := cmp.Or(cmp.Compare(wordA, wordB), cmp.Compare(len(numberA), len(numberB)), cmp.Compare(numberA, numberB)); c != 0 {
			return c
		}
		a, b = restA, restB
	}
	return cmp.Compare(a, b)
}

// head cuts a name into what comes before its first number, the number without leading
// zeros, and the rest.
func head(s string) (word, number, rest string) {
	at := strings.IndexFunc(s, unicode.IsDigit)
	if at < 0 {
		return s, "", ""
	}
	end := at + strings.IndexFunc(s[at:]+"x", func(r rune) bool { return !unicode.IsDigit(r) })
	return s[:at], strings.TrimLeft(s[at:end], "0"), s[end:]
}
