package gateway

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

func TestShadowForwardsUntouched(t *testing.T) {
	m := newModel(t)
	c := onePool(m.URL)
	c.Shadow = true
	_, s := startGateway(t, c)
	release := m.holdAll()
	var wg sync.WaitGroup
	for i := range 9 {
		wg.Go(func() {
			body := row(fmt.Sprint(i), 1, 2)
			a, err := tryPost(s.URL+"/v2/models/sum/infer", strings.NewReader(body))
			direct, _ := sums([]byte(body))
			if err != nil || a.body != string(direct) {
				t.Error(a, err)
			}
		})
	}
	waitFor(t, "9 requests", func() bool {
		d := readStats(t, s.URL)
		return len(d.Models) > 0 && d.Models[0].Requests == 9
	})
	release()
	wg.Wait()
	for _, r := range m.seen() {
		if r.rows != 1 {
			t.Errorf("a batch of %d rows", r.rows)
		}
	}
	d := readStats(t, s.URL)
	if x := d.Models[0].Shadow; x == nil || x.Batchable != 9 || x.Batches < 1 || x.Batches > 9 {
		t.Errorf("%+v", x)
	}
}
