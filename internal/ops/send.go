package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/client"
)

// Place is the place where operations are executed.
type Place struct {
	// Local is the call of the user of this process.
	Local *Call
	// Service is the service with the state; nil for this machine.
	Service *client.Client
}

// send executes an operation at the service of a place.
func (o *Operation[I, D]) send(ctx context.Context, at *Place, in I) (Reply[D], error) {
	req := encode(o.Path, in)
	var r Reply[D]
	var meta client.Meta
	var err error
	switch {
	case o.List != nil:
		r.Doc, meta, err = o.collect(ctx, at, req)
	case !o.Mutates():
		r.Doc, meta, err = client.Get[D](ctx, at.Service, o.Schema, req.path, req.query)
	case o.HasSecret: // the service stores no response that could be repeated
		r.Doc, err = client.PostOnce[D](ctx, at.Service, o.Schema, req.path, req.body)
	default:
		r.Doc, err = client.Post[D](ctx, at.Service, o.Schema, req.path, req.body)
	}
	r.At = meta.At
	var answered *client.Error
	if err = at.explain(err); errors.As(err, &answered) && len(answered.Document) > 0 {
		r.Partial = true
		if bad := json.Unmarshal(answered.Document, &r.Doc); bad != nil {
			return r, errors.Join(err, bad)
		}
	}
	return r, err
}

// explain adds to an error of the service what to do about it here.
func (p *Place) explain(err error) error {
	var answered *client.Error
	if errors.As(err, &answered) && answered.Code == "unauthenticated" {
		answered.Hint = "`curfew login " + p.Service.Server() +
			"` keeps a token for it; the user of the service needs none"
	}
	return err
}

// maxReadings bounds how often a collection is read from the start if items at page boundaries
// disappear meanwhile.
const maxReadings = 4

// collect reads all pages of a collection into one document.
func (o *Operation[I, D]) collect(ctx context.Context, at *Place, req request) (whole D, meta client.Meta, err error) {
	for range maxReadings {
		whole, meta, err = o.pages(ctx, at, req)
		var answered *client.Error
		if !errors.As(err, &answered) || answered.Code != client.CursorGone {
			break
		}
	}
	return whole, meta, err
}

// pages reads the pages of a collection once.
func (o *Operation[I, D]) pages(ctx context.Context, at *Place, req request) (whole D, meta client.Meta, err error) {
	first := true
	meta, err = client.Pages(ctx, at.Service, o.Schema, req.path, req.query, func(page D) error {
		if first {
			whole, first = page, false
			return nil
		}
		o.List.join(&whole, page)
		return nil
	})
	return whole, meta, err
}

// Each executes the operation page by page, so that a long collection is never in memory as a
// whole. Set puts a page into the input of an operation.
func (o *Operation[I, D]) Each(ctx context.Context, at *Place, in I, set func(*I, Paging), each func(D) error) error {
	if at.Service != nil {
		req := encode(o.Path, in)
		_, err := client.Pages(ctx, at.Service, o.Schema, req.path, req.query, each)
		return at.explain(err)
	}
	p := Paging{Limit: client.PageSize}
	for {
		set(&in, p)
		r, err := o.carryOut(ctx, at.Local, in)
		if err != nil {
			return err
		}
		if err := each(r.Doc); err != nil || r.Next == "" {
			return err
		}
		p.Cursor = r.Next
	}
}

// request is an encoded input.
type request struct {
	path  string
	query url.Values
	body  any
}

// encode encodes an input as a request by the tags of its fields.
func encode(path string, in any) request {
	req := request{path: path, query: url.Values{}}
	req.add(reflect.ValueOf(in))
	return req
}

func (r *request) add(v reflect.Value) {
	for i := range v.NumField() {
		field, value := v.Type().Field(i), v.Field(i)
		switch name := field.Tag.Get("query"); {
		case field.Name == "Body":
			r.body = value.Interface()
		case field.Tag.Get("path") != "":
			r.path = strings.ReplaceAll(r.path, "{"+field.Tag.Get("path")+"}", url.PathEscape(value.String()))
		case name != "":
			name, _, _ = strings.Cut(name, ",")
			r.query[name] = parameters(value, field.Tag.Get("default"))
		case field.Anonymous && field.Type.Kind() == reflect.Struct:
			r.add(value)
		}
	}
}

// parameters encodes a query value; defaults are omitted.
func parameters(v reflect.Value, standard string) []string {
	switch value := v.Interface().(type) {
	case []string:
		return value
	case time.Time:
		if value.IsZero() {
			return nil
		}
		return []string{value.UTC().Format(time.RFC3339Nano)}
	}
	text := fmt.Sprint(v.Interface())
	if text == standard || standard == "" && v.IsZero() || text == "" {
		return nil
	}
	return []string{text}
}
