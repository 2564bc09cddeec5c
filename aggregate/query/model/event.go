package model

// Names of the events of a watch.
const (
	EventSnapshot  = "snapshot"  // Cells: everything
	EventSynced    = "synced"    // Synced: what follows are changes
	EventWindow    = "window"    // WindowEvent
	EventHeartbeat = "heartbeat" // Heartbeat
	EventGap       = "gap"       // Gap: what was to be resumed from is not at hand
	EventLagging   = "lagging"   // Gap: the watcher was too slow
)
