package answers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/csigscope/csigscope/aggregate/query/rest"
	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/query/wire"
)

// Answer is an answer of the query API. Its JSON is the API's, and its columns are those of
// exported tables: the fields of its rows, with the names of inner fields joined by _.
type Answer struct {
	message proto.Message
	list    protoreflect.List // the list in message behind the rows; nil if message is the only row
	rows    []proto.Message
	unit    string   // of the signal; empty without one
	brief   []string // columns of the format table, without units
	prose   []string // lines in place of the format table; nil for none
	worst   func(x, y proto.Message) int
}

// newAnswer returns an answer with a row for each element of the named list.
func newAnswer(m proto.Message, name protoreflect.Name, brief ...string) *Answer {
	var about *wire.About // nil if the rows are of no time
	if m, ok := m.(interface{ GetAbout() *wire.About }); ok {
		about = m.GetAbout()
	}
	list := m.ProtoReflect().Mutable(m.ProtoReflect().Descriptor().Fields().ByName(name)).List()
	a := &Answer{message: m, list: list, unit: about.GetUnit(), brief: brief}
	for i := range list.Len() {
		a.rows = append(a.rows, rowOf(about, list.Get(i).Message().Interface()))
	}
	return a
}

// listed makes an answer of a server's message as newAnswer does, or passes its error on.
func listed(name protoreflect.Name, brief ...string) func(proto.Message, error) (*Answer, error) {
	return func(m proto.Message, err error) (*Answer, error) {
		if err != nil {
			return nil, err
		}
		return newAnswer(m, name, brief...), nil
	}
}

// rowOf converts an element to a row of an exported table.
func rowOf(about *wire.About, element proto.Message) proto.Message {
	switch e := element.(type) {
	case *wire.Cell:
		return &wire.ExportedCell{From: about.From, To: about.To, Signal: about.Signal, Cell: e}
	case *wire.Flow:
		return &wire.ExportedFlow{From: about.From, To: about.To, Flow: e}
	}
	return element
}

// Empty reports whether the answer has no rows and no text.
func (a *Answer) Empty() bool { return len(a.rows) == 0 && a.prose == nil }

// Worst is the order that begins with the worst rows.
const Worst = "worst"

// Sort sorts the rows: the worst first, or by a column, where - before its name
// puts the largest first. Column names may omit the unit.
func (a *Answer) Sort(by string) error {
	order := a.worst
	if by != Worst {
		name, down := strings.CutPrefix(by, "-")
		columns := a.columns()
		i := slices.IndexFunc(columns, func(c column) bool { return c.name == name || shortName(c.name) == name })
		if i < 0 {
			return fmt.Errorf("no column %q: expected %s or one of %s; - before it puts the largest first", name, Worst, strings.Join(namesOf(columns), ", "))
		}
		order = func(x, y proto.Message) int {
			n := compare(columns[i].order(x.ProtoReflect()), columns[i].order(y.ProtoReflect()))
			if down {
				return -n
			}
			return n
		}
	}
	if order == nil || a.list == nil {
		return nil // the server puts the worst first
	}
	type pair struct {
		row     proto.Message
		element protoreflect.Value
	}
	pairs := make([]pair, len(a.rows))
	for i := range pairs {
		pairs[i] = pair{a.rows[i], a.list.Get(i)}
	}
	slices.SortStableFunc(pairs, func(x, y pair) int { return order(x.row, y.row) })
	for i, p := range pairs {
		a.rows[i] = p.row
		a.list.Set(i, p.element)
	}
	return nil
}

// compare orders values of one column; rows without a value come first.
func compare(x, y any) int {
	switch {
	case x == nil && y == nil:
		return 0
	case x == nil:
		return -1
	case y == nil:
		return 1
	}
	switch x := x.(type) {
	case float64:
		return cmp.Compare(x, y.(float64))
	case uint64:
		return cmp.Compare(x, y.(uint64))
	case time.Time:
		return x.Compare(y.(time.Time))
	}
	return strings.Compare(fmt.Sprint(x), fmt.Sprint(y))
}

// worstCell orders cells: congested ones first, clear ones last, then by the share of heavy
// observations and their number.
func worstCell(x, y proto.Message) int {
	a, b := x.(*wire.ExportedCell).GetCell(), y.(*wire.ExportedCell).GetCell()
	return cmp.Or(
		cmp.Compare(urgency(b.State), urgency(a.State)), cmp.Compare(b.GetHeavyRatio(), a.GetHeavyRatio()), cmp.Compare(b.Heavy, a.Heavy),
		cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst),
	)
}

// urgency is higher for states that an operator looks at first.
func urgency(s wire.State) int {
	switch s {
	case wire.State_STATE_CONGESTED:
		return 3
	case wire.State_STATE_BRIEF:
		return 2
	case wire.State_STATE_CLEAR:
		return 0
	}
	return 1 // too little data
}

// Write prints the answer in one of tabular.ListingFormats.
func (a *Answer) Write(w io.Writer, format string) error {
	schema := rest.NewSchema()
	var out bytes.Buffer
	switch {
	case format == "table" && a.prose != nil:
		for _, line := range a.prose {
			out.WriteString(line + "\n")
		}
	case format == "json":
		text, err := schema.Append(nil, a.message)
		if err != nil {
			return err
		}
		if err := json.Indent(&out, text, "", "  "); err != nil {
			return fmt.Errorf("write output: %w", err)
		}
		out.WriteByte('\n')
	case format == "ndjson":
		for _, r := range a.rows {
			line, err := schema.Append(out.AvailableBuffer(), r)
			if err != nil {
				return err
			}
			out.Write(append(line, '\n'))
		}
	default:
		return a.listing(format == "table").Write(w, format)
	}
	if _, err := out.WriteTo(w); err != nil {
		return fmt.Errorf("write output: %w", err)
	}
	return nil
}

// listing returns the rows with all columns. If brief, a row is divided into a line per element
// of its list only if the columns of the format table include the list.
func (a *Answer) listing(brief bool) *tabular.Listing {
	columns := a.columns()
	t := newListing(namesOf(columns), a.brief)
	shown := columns
	if brief {
		shown = slices.DeleteFunc(slices.Clone(columns), func(c column) bool { return !slices.Contains(t.Brief, c.name) })
	}
	for _, r := range a.rows {
		m := r.ProtoReflect()
		for n := range linesOf(m, shown) {
			row := make([]any, len(columns))
			for i := range columns {
				row[i] = columns[i].value(m, n)
			}
			t.Rows = append(t.Rows, row)
		}
	}
	return t
}

// columns are the columns of the rows.
func (a *Answer) columns() []column {
	d := a.message.ProtoReflect().Descriptor()
	if a.list != nil {
		d = rowOf(&wire.About{}, a.list.NewElement().Message().Interface()).ProtoReflect().Descriptor()
	}
	return columnsOf(nil, nil, d, a.unit)
}
