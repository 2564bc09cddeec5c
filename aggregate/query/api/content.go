package api

import (
	"encoding/json"
	"fmt"

	"github.com/csigscope/csigscope/aggregate/query/model"
	"github.com/csigscope/csigscope/aggregate/table"
)

// content is a value of package model that is not encoded yet.
type content struct {
	value any
	// view and chosen are the cells that value, a model.Cells or a model.WindowEvent, leaves
	// out; nil where it is whole.
	view   *view
	chosen []int
	bytes  int // of what value holds itself, where that is much
	// shared is the content as JSON, for all who ask the same; nil where they are not known.
	shared *lazily[[]byte]
}

// json is the content as JSON. It is not to be written to.
func (c *content) json() ([]byte, error) {
	if c.shared != nil {
		return c.shared.get(c.encode)
	}
	return c.encode()
}

func (c *content) encode() ([]byte, error) {
	body, err := json.Marshal(c.value)
	if err != nil {
		return nil, fmt.Errorf("encode answer: %w", err)
	}
	if c.view != nil {
		body = c.view.fill(body, c.chosen)
	}
	return body, nil
}

// size is about how many bytes the content takes, encoded or not.
func (c *content) size() int {
	if c.view == nil {
		return leastSize + c.bytes + c.bytes*4/3
	}
	return leastSize + (textBytes+8)*len(c.chosen) + c.view.size() // which it may keep when others have let go of it
}

// whole is the value with its cells.
func (c *content) whole() any {
	if c.view == nil {
		return c.value
	}
	switch v := c.value.(type) {
	case *model.Cells:
		whole := *v
		whole.Values = c.view.models(c.chosen)
		return &whole
	case *model.WindowEvent:
		whole := *v
		whole.Values = c.view.models(c.chosen)
		return &whole
	}
	return c.value
}

// answer is what a question came to, of a state of the memory or, without one, of the store.
type answer struct {
	content
	state *table.State
}

// of is an answer that is whole.
func of(s *table.State, v any) (*answer, error) { return &answer{content{value: v}, s}, nil }
