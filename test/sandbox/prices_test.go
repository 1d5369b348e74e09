package sandbox

import "testing"

func TestDollarsRoundHalfToEven(t *testing.T) {
	for in, want := range map[string]string{
		"16.425": "16.42", "16.435": "16.44", "16.4250001": "16.43", "0": "0.00", "713.648": "713.65", "1/3": "0.33",
	} {
		if got := dollars(rat(in)); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
}

// The figures below were calculated by hand.
func TestCosts(t *testing.T) {
	for _, c := range []struct{ name, got, want string }{
		{
			"a disk with more than gp3 comes with",
			cost(term{"500", "ebs:gp3"}, term{"3000", "ebs:gp3:iops"}, term{"125", "ebs:gp3:throughput"}), "60.00",
		},
		{"a load balancer", cost(term{"730", "lb:application"}), "16.42"},
		{"a p4d", month("p4d.24xlarge", east, 1), "16029.08"},
		{"three g5.2xlarge", month("g5.2xlarge", east, 3), "2654.28"},
	} {
		if c.got != c.want {
			t.Errorf("%s costs %s, want %s", c.name, c.got, c.want)
		}
	}
}
