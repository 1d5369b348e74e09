package ops

import (
	"encoding/base64"
	"errors"
	"slices"

	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/client"
)

// Paging selects a part of a collection; zero for all.
type Paging struct {
	Cursor string `query:"cursor" maxLength:"400" doc:"Where the page begins: Next-Cursor of the one before."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most items of a page."`
}

func (p Paging) paging() Paging { return p }

// after returns the key in the cursor; empty for the start.
func (p Paging) after() (string, error) {
	key, err := base64.RawURLEncoding.DecodeString(p.Cursor)
	if err != nil || p.Cursor != "" && len(key) == 0 {
		return "", invalidCursor()
	}
	return string(key), nil
}

func invalidCursor() error {
	return &runtime.Error{
		Class: runtime.Usage, Code: "invalid_cursor", Hint: "begin without a cursor",
		Err: errors.New("the cursor is none of this collection"),
	}
}

// cursorGone returns the error of a page that begins after a missing item.
func cursorGone() error {
	return &runtime.Error{
		Class: runtime.Usage, Code: client.CursorGone, Hint: "begin without a cursor",
		Err: errors.New("the item after which the page begins is no longer in the collection"),
	}
}

func cursor(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// List divides documents with a list of items into pages.
type List[D any] struct {
	// cut reduces a document to one page and returns the cursor of the next; nil if the operation
	// reads pages itself.
	cut func(p Paging, doc *D) (next string, err error)
	// join appends a page to the previous ones.
	join func(whole *D, page D)
}

// listOf returns the List of documents with items identified by a key.
func listOf[D, T any](items func(*D) *[]T, key func(T) string) *List[D] {
	l := joined(items)
	l.cut = func(p Paging, doc *D) (next string, err error) {
		all := items(doc)
		*all, next, err = page(p, *all, key)
		return next, err
	}
	return l
}

// joined returns the List of documents whose operation reads pages itself.
func joined[D, T any](items func(*D) *[]T) *List[D] {
	return &List[D]{join: func(whole *D, page D) {
		all := items(whole)
		*all = append(*all, *items(&page)...)
	}}
}

// page returns one page of a list and the cursor of the next page.
func page[T any](p Paging, all []T, key func(T) string) (items []T, next string, err error) {
	after, err := p.after()
	if err != nil {
		return nil, "", err
	}
	if after != "" {
		i := slices.IndexFunc(all, func(v T) bool { return key(v) == after })
		if i < 0 {
			return nil, "", cursorGone()
		}
		all = all[i+1:]
	}
	if p.Limit > 0 && len(all) > p.Limit {
		all = all[:p.Limit]
		next = cursor(key(all[len(all)-1]))
	}
	return append([]T{}, all...), next, nil
}

// nextOf returns the cursor after a page from the state.
func nextOf[T any](items []T, more bool, key func(T) string) string {
	if !more || len(items) == 0 {
		return ""
	}
	return cursor(key(items[len(items)-1]))
}

// only returns the items that a filter keeps.
func only[T any](all []T, keep func(T) bool) []T {
	out := []T{}
	for _, v := range all {
		if keep(v) {
			out = append(out, v)
		}
	}
	return out
}
