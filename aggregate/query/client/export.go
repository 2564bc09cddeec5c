package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
)

// Tables that a server exports.
const (
	TableCells    = "export" // parameter table: cells or windows
	TableFlows    = "export/flows"
	TableFindings = "export/findings"
)

// Exported is how a table ended.
type Exported struct {
	Rows     int
	Complete bool
	CutBy    string // rows or time, where it is not complete
}

// errCutOff says that a transfer has broken off.
var errCutOff = errors.New("the table broke off: ask again, or for less")

// Export writes a table to w as it comes. Parameters are those of /api/v1/export and below;
// format is csv, parquet or arrow. What w has got is of no use after an error.
func (c *Client) Export(ctx context.Context, table string, parameters url.Values, w io.Writer) (*Exported, error) {
	response, err := c.open(ctx, table, parameters, "")
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if _, err := io.Copy(w, response.Body); err != nil {
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = errCutOff
		}
		return nil, fmt.Errorf("read %s: %w", table, err)
	}
	rows, err := strconv.Atoi(response.Trailer.Get("Csigscope-Rows"))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", table, errCutOff)
	}
	return &Exported{rows, response.Trailer.Get("Csigscope-Complete") == "true", response.Trailer.Get("Csigscope-Cut-By")}, nil
}
