package webhook

import (
	"testing"
	"time"
)

func TestWindow(t *testing.T) {
	for _, tt := range []struct {
		d    time.Duration
		want string
	}{
		{0, "0s"}, {90 * time.Second, "1m30s"}, {5 * time.Minute, "5m"}, {3 * time.Hour, "3h"},
		{90 * time.Minute, "1h30m"},
		{24 * time.Hour, "1d"}, {36 * time.Hour, "36h"}, {14 * 24 * time.Hour, "14d"}, {60 * time.Hour, "2d12h"},
		{10 * time.Hour, "10h"},
	} {
		if got := window(tt.d); got != tt.want {
			t.Errorf("window(%v) = %q, want %q", tt.d, got, tt.want)
		}
	}
}
