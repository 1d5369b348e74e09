package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestServesUntilInterrupted(t *testing.T) {
	ctx, interrupt := context.WithTimeout(t.Context(), 5*time.Minute)
	defer interrupt()
	r, w := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := run(ctx, []string{"--no-seed"}, w, io.Discard)
		ended <- err
		w.CloseWithError(io.EOF)
	}()
	exported := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		assignment, ok := strings.CutPrefix(lines.Text(), "export ")
		k, v, _ := strings.Cut(assignment, "=")
		if !ok {
			t.Errorf("printed %q, which is no export", lines.Text())
		}
		if exported[k] = v; k == "AWS_PROFILE" {
			break // the last one
		}
	}
	url := exported["AWS_ENDPOINT_URL"]
	res, err := http.Get(url)
	if err != nil {
		t.Fatalf("no server answers at %q: %v", url, err)
	}
	res.Body.Close()
	interrupt()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if res, err := http.Get(url); err == nil {
		res.Body.Close()
		t.Error("it still answers after the interruption")
	}
}

func TestFlags(t *testing.T) {
	if err := run(t.Context(), []string{"--ports", "1"}, io.Discard, io.Discard); err == nil ||
		!strings.Contains(err.Error(), "flags") {
		t.Errorf("%v, want an error about the flags", err)
	}
	if err := run(t.Context(), []string{"--help"}, io.Discard, io.Discard); err != nil {
		t.Errorf("--help: %v", err)
	}
}
