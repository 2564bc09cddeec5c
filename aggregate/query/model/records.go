package model

import "time"

// Flow is one flow of a cell, in the measured direction, or what all flows that no window
// names come to.
type Flow struct {
	Others       bool        `json:"others" doc:"all flows of the cell that no window names: without addresses" example:"false"`
	Src          string      `json:"src_address,omitempty" doc:"of the measured direction" example:"10.0.1.1"`
	SrcPort      uint16      `json:"src_port,omitempty" doc:"TCP or UDP port" example:"49152"`
	Dst          string      `json:"dst_address,omitempty" doc:"of the measured direction" example:"10.0.2.1"`
	DstPort      uint16      `json:"dst_port,omitempty" doc:"TCP or UDP port" example:"4791"`
	Proto        uint8       `json:"proto,omitempty" doc:"number of the IP protocol" example:"17"`
	SrcGroup     string      `json:"src_group" doc:"source group" example:"rack1"`
	DstGroup     string      `json:"dst_group" doc:"destination group" example:"rack2"`
	Kind         string      `json:"kind" enum:"tag,reflection" doc:"what the observations are: tags at receivers, or reflections at senders" example:"tag"`
	Observations uint64      `json:"observations" doc:"how many tags or reflections, weighted by the sampling" example:"1200"`
	Bytes        uint64      `json:"bytes" doc:"of the observed packets, in bytes" example:"1800000"`
	Mean         *Measure    `json:"mean,omitempty" doc:"mean of what was observed"`
	Min          *Measure    `json:"min,omitempty" doc:"the least value that was observed"`
	Max          *Measure    `json:"max,omitempty" doc:"the greatest value that was observed"`
	Heavy        uint64      `json:"heavy" doc:"heavily loaded observations" example:"480"`
	HeavyRatio   float64     `json:"heavy_ratio" doc:"heavy of observations" example:"0.4"`
	Windows      uint64      `json:"windows" doc:"that name it: in all others it is one of the others" example:"1"`
	Mode         *Bottleneck `json:"mode,omitempty" doc:"the location that most heavily loaded observations name, window by window"`
}

// Flows are flows by heavily loaded observations, the most first.
type Flows struct {
	About
	WindowSeconds float64 `json:"window_s" doc:"length of the windows that name flows" example:"1"`
	Total         int     `json:"total" doc:"flows on all pages" example:"240"`
	Truncated     bool    `json:"truncated" doc:"there are more than that: ask for less" example:"false"`
	Next          string  `json:"next_cursor,omitempty" doc:"asks for the next page of the same answer" example:"MDAwMDAwMDAwMDAwMDAwNy00Mi4xLjEw"`
	Values        []Flow  `json:"flows" nullable:"false" doc:"the most heavily loaded first"`
}

// Finding is something that broke the protocol or the configuration.
type Finding struct {
	Kind     string    `json:"kind" doc:"what rule was broken" example:"rogue-insertion"`
	ID       string    `json:"id" doc:"what it is about: kind and id name a finding" example:"9f86d081884c7d65"`
	Severity string    `json:"severity" enum:"info,warning,error" doc:"how bad it is" example:"error"`
	First    time.Time `json:"first" doc:"when it was first seen in the range" example:"2026-01-20T09:00:00Z"`
	Last     time.Time `json:"last" doc:"when it was last seen in the range" example:"2026-01-20T09:10:00Z"`
	Count    uint64    `json:"count" doc:"how often it was seen" example:"3"`
	Device   string    `json:"device,omitempty" doc:"device that it is about" example:"leaf3"`
	Port     string    `json:"port,omitempty" doc:"port of the device" example:"up1"`
	Location string    `json:"location,omitempty" doc:"location that it is about" example:"leaf3:up1"`
	Evidence string    `json:"evidence,omitempty" doc:"for people" example:"S=31 from 10.0.1.1"`
	Packets  []uint64  `json:"packets,omitempty" nullable:"false" doc:"numbers in the capture, the first 64" example:"[9,12]"`
}

// Findings are findings, the most severe and latest first.
type Findings struct {
	Source    string     `json:"source" enum:"store" doc:"findings are in the store alone" example:"store"`
	From      time.Time  `json:"from" doc:"start of the range" example:"2026-01-20T09:00:00Z"`
	To        time.Time  `json:"to" doc:"end of the range, exclusive" example:"2026-01-20T09:00:01Z"`
	AsOf      *time.Time `json:"as_of,omitempty" doc:"when the store was asked: all pages are of that answer" example:"2026-01-20T09:01:00Z"`
	Total     int        `json:"total" doc:"findings on all pages" example:"240"`
	Truncated bool       `json:"truncated" doc:"there are more than that: ask for less" example:"false"`
	Next      string     `json:"next_cursor,omitempty" doc:"asks for the next page of the same answer" example:"MDAwMDAwMDAwMDAwMDAwNy00Mi4xLjEw"`
	Values    []Finding  `json:"findings" nullable:"false" doc:"the most severe and latest first"`
}
