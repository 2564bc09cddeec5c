package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/csigscope/csigscope/replay/persist"
)

// lookPatience is the time limit for a last query of the store after an interrupt.
const lookPatience = 10 * time.Second

// maxNamed is the maximum number of names in one line.
const maxNamed = 5

// printPartial prints the state of files whose replay failed or was interrupted.
func printPartial(cmd *cobra.Command, db *openedStore, r *persist.Recorder) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(cmd.Context()), lookPatience)
	defer cancel()
	partial, earlier, err := r.Interrupted(ctx, db.store)
	if err != nil {
		db.logger.Debug("read runs", slog.Any("error", err))
		fmt.Fprintln(cmd.ErrOrStderr(), "the replay did not finish: run it again; the result of an earlier replay, if there is one, stays visible")
		return
	}
	if len(partial)+len(earlier) == 0 {
		fmt.Fprintln(cmd.ErrOrStderr(), "the replay did not finish: run it again")
	}
	if len(partial) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "stored in part, and shown as incomplete until a replay finishes: %s: run it again\n", someOf(partial))
	}
	if len(earlier) > 0 {
		fmt.Fprintf(cmd.ErrOrStderr(), "the result of an earlier replay stays visible: %s\n", someOf(earlier))
	}
}

// notePartial warns that some numbers come from partially stored captures.
func notePartial(ctx context.Context, w io.Writer, db *openedStore) ([]string, error) {
	runs, err := db.store.PartialRuns(ctx)
	if err != nil || len(runs) == 0 {
		return nil, err
	}
	list := make([]string, 0, len(runs))
	for _, r := range runs {
		list = append(list, r.Name)
	}
	fmt.Fprintf(w, "note: stored in part, since their replay is under way or was interrupted: %s\n", someOf(list))
	return list, nil
}

// someOf joins the first elements of a list.
func someOf(list []string) string {
	if len(list) > maxNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:maxNamed], ", "), len(list)-maxNamed)
	}
	return strings.Join(list, ", ")
}
