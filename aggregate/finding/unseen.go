package finding

import (
	"fmt"
	"io"
)

// unseen are faults that receivers do not show, why not, and what does.
var unseen = [...][3]string{
	{"a port's table of codes is off", "the port may be as loaded, or as slow", "its counters (`conform --metrics`)"},
	{"a device tags packets of others", "senders may tag what they like", "captures at senders, or around it (`conform`)"},
	{"a rack's first device strips tags", "its hosts may send none", "captures at senders"},
	{"a port writes a value beside the locator that it finds, where that is a port's before it", "that port may have written it: values that follow each other at one port differ as much without the fault", "captures around it (`conform`)"},
	{"a sender writes values in the name of a port that hardly any other tag names", "the port may be so loaded; after 600 ms it is stuck, or the sender writes them", "captures at senders"},
	{"a device sets values back or writes over them, in a dozen flows, or of delays of few codes", "by chance those may be the flows that pass it; few codes say the same of different delays", "more flows, or captures around it (`conform`)"},
	{"a port writes into trimmed packets", "what the value was when they were trimmed is gone", "captures around it (`conform`)"},
}

// writeUnseen writes them as a table in Markdown.
func writeUnseen(w io.Writer) error {
	text := "\nWhat receivers do not show, however much they see:\n\n| fault | why not | what shows it |\n|---|---|---|\n"
	for _, row := range unseen {
		text += fmt.Sprintf("| %s | %s | %s |\n", row[0], row[1], row[2])
	}
	if _, err := io.WriteString(w, text); err != nil {
		return fmt.Errorf("write reference of findings: %w", err)
	}
	return nil
}
