package remote

import (
	"cmp"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/csigscope/csigscope/ingest/edge"
)

// errHardLimit is the error for a message that would cost too much to decode.
var errHardLimit = errors.New("beyond a hard limit of the protocol")

// The field numbers that scan uses; see ingest.proto.
const (
	fieldExporter, fieldDescriptions, fieldBlocks, fieldObservations, fieldRecords = 1, 2, 3, 4, 5
	fieldProvisional, fieldProvisionalBlock                                        = 6, 2

	fieldText, fieldGroups, fieldLocations = 3, 4, 5
	fieldCandidates                        = 8
	fieldStream, fieldSignal, fieldFlows   = 1, 9, 27
	fieldFlowKind                          = 9
	fieldObservedKind                      = 10
	fieldTap, fieldGap, fieldFindings      = 5, 6, 9

	fieldShared, fieldSharedBlock = 1, 3
	fieldSharedProvisional        = 2
)

// messageCounts counts the contents of a message. A decoder allocates much more than the size of a
// message only for many empty messages and strings; these are limited here before anything is
// allocated. Numbers take at most 8 times their size.
type messageCounts struct {
	items, rows, names int
	findings           int // of a record
}

// scan rejects a PushRequest that is malformed or beyond the protocol's limits.
func scan(data []byte) error {
	var c messageCounts
	return eachField(data, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldExporter:
			return atMost("name of the exporter", len(v), edge.MaxNameBytes)
		case fieldDescriptions:
			return c.item(v, c.description)
		case fieldBlocks:
			return c.item(v, c.block)
		case fieldObservations:
			return c.item(v, c.columns(fieldObservedKind))
		case fieldRecords:
			c.findings = 0
			return c.item(v, c.record)
		case fieldProvisional:
			return c.item(v, c.within(fieldProvisionalBlock))
		}
		return nil
	})
}

// scanShared rejects a ShareRequest that is malformed or beyond the protocol's limits.
func scanShared(data []byte) error {
	var c messageCounts
	return eachField(data, func(n protowire.Number, v []byte) error {
		switch n {
		case fieldShared:
			return c.item(v, c.within(fieldSharedBlock))
		case fieldSharedProvisional:
			return c.item(v, c.within(fieldProvisionalBlock))
		}
		return nil
	})
}

// within scans a message with a block in the given field.
func (c *messageCounts) within(field protowire.Number) func(protowire.Number, []byte) error {
	return func(n protowire.Number, v []byte) error {
		if n == field {
			return eachField(v, c.block)
		}
		return nil
	}
}

func (c *messageCounts) item(data []byte, field func(protowire.Number, []byte) error) error {
	c.items++
	if err := atMost("items", c.items, maxItems); err != nil {
		return err
	}
	return eachField(data, field)
}

// columns scans a message whose number of rows is the length of one column.
func (c *messageCounts) columns(column protowire.Number) func(protowire.Number, []byte) error {
	return func(n protowire.Number, v []byte) error {
		switch n {
		case fieldStream:
			return atMost("name of a stream", len(v), maxStreamBytes)
		case column:
			c.rows += len(v)
			return atMost("rows", c.rows, maxRows)
		}
		return nil
	}
}

// block also counts the rows of a block's flows.
func (c *messageCounts) block(n protowire.Number, v []byte) error {
	if n == fieldFlows {
		return eachField(v, c.columns(fieldFlowKind))
	}
	return c.columns(fieldSignal)(n, v)
}

func (c *messageCounts) record(n protowire.Number, v []byte) error {
	switch n {
	case fieldStream:
		return atMost("name of a stream", len(v), maxStreamBytes)
	case fieldTap, fieldGap:
		// Its strings are shorter than the record, and each map entry takes some bytes.
		return atMost("bytes of a record", len(v), maxRecordBytes)
	case fieldFindings:
		c.findings++
		c.rows++
		return cmp.Or(atMost("findings of a record", c.findings, MaxFindings), atMost("rows", c.rows, maxRows), atMost("bytes of a finding", len(v), maxFindingBytes))
	}
	return nil
}

func (c *messageCounts) description(n protowire.Number, v []byte) error {
	switch n {
	case fieldText:
		return atMost("configuration", len(v), maxTextBytes)
	case fieldGroups, fieldLocations:
		c.names++
		if err := atMost("groups and locations", c.names, maxMessageNames); err != nil {
			return err
		}
		candidates := 0
		return eachField(v, func(f protowire.Number, s []byte) error {
			if n == fieldLocations && f == fieldCandidates {
				candidates++
			}
			if err := atMost("candidates", candidates, maxCandidates); err != nil {
				return err
			}
			return atMost("name", len(s), edge.MaxNameBytes)
		})
	}
	return nil
}

func atMost(what string, n, limit int) error {
	if n > limit {
		return fmt.Errorf("%w: %s: %d, at most %d", errHardLimit, what, n, limit)
	}
	return nil
}

// eachField visits the fields of a message; v is nil for fields without a length.
func eachField(data []byte, visit func(n protowire.Number, v []byte) error) error {
	for len(data) > 0 {
		n, typ, size := protowire.ConsumeTag(data)
		if size < 0 {
			return protowire.ParseError(size)
		}
		data = data[size:]
		var v []byte
		if typ == protowire.BytesType {
			v, size = protowire.ConsumeBytes(data)
		} else {
			size = protowire.ConsumeFieldValue(n, typ, data)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		data = data[size:]
		if err := visit(n, v); err != nil {
			return err
		}
	}
	return nil
}
