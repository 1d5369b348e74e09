package learn

import (
	"testing"

	"github.com/curfew-dev/curfew/internal/usage"
)

func TestClass(t *testing.T) {
	tests := []struct {
		name string
		d    *usage.Description
		want string
	}{
		{"nothing said", nil, "instance//experimentation/"},
		{
			"all said", &usage.Description{Kind: "node", Type: "p4d.24xlarge", Purpose: "training", Team: "vision"},
			"node/p4d.24xlarge/training/vision",
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if got := (Resource{Description: test.d}).Class().String(); got != test.want {
				t.Errorf("class %q, want %q", got, test.want)
			}
		})
	}
}
