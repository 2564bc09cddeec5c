package api

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// PageInput chooses a page.
type PageInput struct {
	Cursor string `query:"cursor" maxLength:"200" doc:"next_cursor of the page before, with the same parameters" example:"MDAwMDAwMDAwMDAwMDAwNy00Mi4xLjEw"`
}

// pin is what all pages of one answer of the store have in common, and where the next one
// begins. The zero value is the first page of an answer that nobody has seen.
type pin struct {
	from, to, asOf  int64 // Unix ns
	offset          int
	question, print uint64 // hashes of the parameters and of all rows
}

// questionHash is a hash of parameters without pointers in them.
func questionHash(parameters ...any) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%+v", parameters)
	return h.Sum64()
}

func (p *pin) cursor() string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "h.%d.%d.%d.%d.%x.%x", p.from, p.to, p.asOf, p.offset, p.question, p.print))
}

// seen tells whether a page came before.
func (p *pin) seen() bool { return p.asOf != 0 }

// pinAt reads a cursor of the question; an empty one is of the first page.
func pinAt(cursor string, question uint64) (pin, error) {
	p := pin{question: question}
	if cursor == "" {
		return p, nil
	}
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		_, err = fmt.Sscanf(string(text), "h.%d.%d.%d.%d.%x.%x", &p.from, &p.to, &p.asOf, &p.offset, &p.question, &p.print)
	}
	switch {
	case err != nil || p.cursor() != cursor || p.offset < 0 || p.asOf <= 0:
		return p, wrong("cursor", cursor, "is not the next_cursor of a page of history: leave it out to begin anew")
	case p.question != question:
		return p, wrong("cursor", cursor, "is of a question with other parameters: leave it out to begin anew")
	}
	return p, nil
}

// page is a part of an answer of the store.
type page[T any] struct {
	rows      []T
	total     int
	truncated bool // there are more rows than that
	asOf      *time.Time
	next      string
}

// paged gives the page that begins at a pin. Rows are asked for once, and kept a while for
// the pages that follow; where they are not at hand any more they are asked for again, and
// have to be the same. Beyond most, rows are left out and truncated says so.
func paged[T any](a *API, at pin, limit, most int, ask func() ([]T, error)) (page[T], error) {
	rows, known := a.kept.get(at, a.Now()).([]T)
	if !known {
		var err error
		if rows, err = ask(); err != nil {
			return page[T]{}, err
		}
		if at.seen() && fingerprint(rows) != at.print {
			return page[T]{}, huma.NewError(410, "cursor: what is stored has changed since the page before: leave it out to begin anew")
		}
	}
	if !at.seen() {
		at.asOf = a.Now().UnixNano()
	}
	asOf := time.Unix(0, at.asOf).UTC()
	p := page[T]{total: min(len(rows), most), truncated: len(rows) > most, asOf: &asOf}
	begin := min(at.offset, p.total)
	end := min(begin+limit, p.total)
	p.rows = rows[begin:end]
	if end == p.total {
		return p, nil
	}
	if at.offset == 0 {
		at.print = fingerprint(rows)
	}
	if !known {
		a.kept.put(at, rows, len(rows), a.Now())
	}
	at.offset = end
	p.next = at.cursor()
	return p, nil
}

// fingerprint tells rows from others.
func fingerprint[T any](rows []T) uint64 {
	h := fnv.New64a()
	_ = json.NewEncoder(h).Encode(rows) // what cannot be encoded is no answer either
	return h.Sum64()
}

const (
	// maxKept bounds the rows that are kept for further pages, each of about 500 bytes.
	maxKept = 1 << 16
	// keptFor is how long rows are kept that nobody asks for.
	keptFor = 2 * time.Minute
)

// keptAnswers are the rows of answers of the store that have further pages.
type keptAnswers struct {
	mu   sync.Mutex
	list []keptAnswer // the one that was used last at the end
}

type keptAnswer struct {
	pin  pin // without an offset
	rows any
	n    int
	used time.Time
}

// get gives the rows of a pin, nil where they are not at hand.
func (k *keptAnswers) get(p pin, now time.Time) any {
	p.offset = 0
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = slices.DeleteFunc(k.list, func(a keptAnswer) bool { return now.Sub(a.used) > keptFor })
	i := slices.IndexFunc(k.list, func(a keptAnswer) bool { return a.pin == p })
	if i < 0 {
		return nil
	}
	found := k.list[i]
	found.used = now
	k.list = append(slices.Delete(k.list, i, i+1), found)
	return found.rows
}

// put keeps the rows of a pin, if there is room where what was used longest ago is given up.
func (k *keptAnswers) put(p pin, rows any, n int, now time.Time) {
	if p.offset = 0; n > maxKept {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = append(k.list, keptAnswer{p, rows, n, now})
	total := 0
	for i, a := range slices.Backward(k.list) {
		if total += a.n; total > maxKept {
			k.list = slices.Delete(k.list, 0, i+1)
			return
		}
	}
}

// isPast tells whether a cursor is of an answer of the store.
func isPast(cursor string) bool {
	text, err := base64.RawURLEncoding.DecodeString(cursor)
	return err == nil && strings.HasPrefix(string(text), "h.")
}
