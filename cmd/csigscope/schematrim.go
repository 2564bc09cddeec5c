package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/aggregate/query/tabular"
	"github.com/csigscope/csigscope/aggregate/store"
)

func newSchemaTrim() *cobra.Command {
	var dsn, output, budget string
	var box outboxFlags
	cmd := &cobra.Command{
		Use:   "trim --max-disk SIZE",
		Short: "Delete the oldest windows until a database fits its disk budget",
		Long: `Delete the oldest windows until a database takes no more disk than its budget: fine
windows by the hour first, then 1 s windows with their flows by the day, then by the month
the flows of 1 min windows and what was said of taps and findings; never 1 min windows. All
tables count. What was deleted is printed, and recorded in the table gaps, so that "schema
verify" still holds what is left against what taps counted. The budget of the configuration
file (store: max_disk) is the default; to that, query serve, demo, replay and collect trim by
themselves while they run.`,
		Example: "  csigscope schema trim --max-disk 50GB",
		Args:    noArgs,
	}
	addStoreFlag(cmd, &dsn)
	box.add(cmd.Flags())
	addOutputFlag(cmd, &output)
	cmd.Flags().StringVar(&budget, "max-disk", "", "`SIZE` such as 50GB or 200GiB, default that of the configuration file")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		limit, err := diskBudget(cmd, dsn, budget)
		if err != nil {
			return err
		}
		db, err := connect(cmd, dsn, mustExist, &box)
		if err != nil {
			return err
		}
		if db == nil {
			return usageError{fmt.Errorf("schema trim: --store none has nothing to trim")}
		}
		defer db.Close()
		dropped, err := db.store.Trim(cmd.Context(), limit)
		t := tabular.Listing{Columns: []string{"table", "partition", "rows", "bytes"}}
		for _, d := range dropped {
			t.Rows = append(t.Rows, []any{d.Table, d.Partition, d.Rows, d.Bytes})
		}
		return errors.Join(t.Write(cmd.OutOrStdout(), output), err)
	}
	return cmd
}

// diskBudget is what the flag says, else the configuration file.
func diskBudget(cmd *cobra.Command, dsn, flag string) (uint64, error) {
	if flag == "" {
		c, err := storeSettings(cmd, dsn)
		if err != nil || !c.MaxDisk.IsZero() {
			return c.MaxDisk.n, err
		}
	}
	limit, err := parseBytes(flag)
	if err != nil {
		return 0, usageError{fmt.Errorf("--max-disk: %w", err)}
	}
	return limit, nil
}

var byteUnits = []struct {
	name string
	size float64
}{
	{"KiB", 1 << 10},
	{"MiB", 1 << 20},
	{"GiB", 1 << 30},
	{"TiB", 1 << 40},
	{"kB", 1e3},
	{"KB", 1e3},
	{"MB", 1e6},
	{"GB", 1e9},
	{"TB", 1e12},
	{"B", 1},
	{"", 1},
}

// parseBytes reads a size with a unit; none is bytes.
func parseBytes(text string) (uint64, error) {
	for _, u := range byteUnits {
		digits, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(digits), 64)
		if err != nil || !(n > 0) || n*u.size >= math.MaxInt64 {
			break
		}
		return uint64(n * u.size), nil
	}
	return 0, fmt.Errorf("size %q: expected a number above 0 with a unit, such as 50GB or 200GiB", text)
}

// retentionNames are the resolutions in the order of the store's tables.
var retentionNames = []string{"fine", "1s", "1m"}

// parseRetention reads a list of RESOLUTION=TIME.
func parseRetention(list []string) (store.Retention, error) {
	var keep store.Retention
	for _, item := range list {
		name, text, _ := strings.Cut(item, "=")
		found := false
		for g, known := range retentionNames {
			if name != known {
				continue
			}
			d, err := parseDays(text)
			if err != nil || d <= 0 {
				return keep, fmt.Errorf("%q: expected a time such as 6h or 14d", item)
			}
			found, keep[g] = true, d
		}
		if !found {
			return keep, fmt.Errorf("%q: expected fine=TIME, 1s=TIME or 1m=TIME", item)
		}
	}
	return keep, nil
}

// parseDays is time.ParseDuration that knows days.
func parseDays(text string) (time.Duration, error) {
	days, ok := strings.CutSuffix(text, "d")
	if !ok {
		return time.ParseDuration(text)
	}
	n, err := strconv.ParseUint(days, 10, 16)
	return time.Duration(n) * 24 * time.Hour, err
}

// asUsage marks what the user asked for wrongly.
func asUsage(err error) error {
	if errors.Is(err, store.ErrRetention) {
		return usageError{err}
	}
	return err
}
