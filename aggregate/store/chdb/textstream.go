package chdb

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
)

// heading returns the length of the heading that each piece of a streamed result repeats: the
// engine writes each piece as a result of its own. It returns -1 if the piece holds no complete
// heading.
type heading func(piece []byte) int

// streamed are the formats, in lower case, whose pieces can be concatenated without the headings
// of all but the first. Results of other formats are collected first, within max_result_bytes.
var streamed = map[string]heading{
	"tabseparated": bare, "tsv": bare, "tabseparatedraw": bare, "tsvraw": bare,
	"tabseparatedwithnames": lines(1), "tsvwithnames": lines(1),
	"tabseparatedwithnamesandtypes": lines(2), "tsvwithnamesandtypes": lines(2),
	"csv": bare, "csvwithnames": quotedLines(1), "csvwithnamesandtypes": quotedLines(2),
	"jsoneachrow": bare, "jsonlines": bare, "ndjson": bare, "jsonstringseachrow": bare,
	"jsoncompacteachrow": bare, "jsoncompacteachrowwithnames": lines(1), "jsoncompacteachrowwithnamesandtypes": lines(2),
	"rowbinary": bare, "rowbinarywithnames": binaryNames(1), "rowbinarywithnamesandtypes": binaryNames(2),
}

func streamHeading(format string) (heading, bool) {
	h, ok := streamed[strings.ToLower(format)]
	return h, ok
}

func bare([]byte) int { return 0 }

// lines are headings in which a line break is never part of a name.
func lines(n int) heading {
	return func(piece []byte) int {
		size := 0
		for range n {
			i := bytes.IndexByte(piece[size:], '\n')
			if i < 0 {
				return -1
			}
			size += i + 1
		}
		return size
	}
}

// quotedLines are headings with names in double quotes, doubled inside.
func quotedLines(n int) heading {
	return func(piece []byte) int {
		inside, left := false, n
		for i, c := range piece {
			switch {
			case c == '"':
				inside = !inside
			case c == '\n' && !inside:
				if left--; left == 0 {
					return i + 1
				}
			}
		}
		return -1
	}
}

// binaryNames are headings of a count and, for each column, rounds strings.
func binaryNames(rounds int) heading {
	return func(piece []byte) int {
		columns, size := binary.Uvarint(piece)
		if size <= 0 || columns > uint64(len(piece)) {
			return -1
		}
		for range columns * uint64(rounds) {
			length, n := binary.Uvarint(piece[size:])
			if n <= 0 || length > uint64(len(piece)-size-n) {
				return -1
			}
			size += n + int(length)
		}
		return size
	}
}

// copyPieces writes a streamed result with one heading.
func copyPieces(w io.Writer, stream *resultStream, h heading) error {
	for begun := false; ; begun = true {
		piece, err := stream.next()
		if err != nil || len(piece) == 0 {
			return err
		}
		if begun {
			size := h(piece)
			if size < 0 {
				return newException(codeUnknownFormat, "a piece of the result has no heading")
			}
			piece = piece[size:]
		}
		if _, err := w.Write(piece); err != nil {
			return err
		}
	}
}
