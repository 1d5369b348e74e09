package learn

import (
	"math"
	"math/bits"
	"time"
)

// Learned releases by what the past of the fleet says. It is the ski-rental problem:
// keeping an idle resource is renting, letting it go and paying a restart is
// buying. Who knows nothing releases after one restart cost, and never pays more
// than twice what was needed (Karlin, Manasse, Rudolph, Sleator, "Competitive
// snoopy caching", Algorithmica 3, 1988). Who knows what usually happens next can
// do better (Karlin, Manasse, McGeoch and Owicki, Algorithmica 11, 1994).
//
// At every idle sample it asks the ski-rental question again: is it better to hold
// the resource a while more, or to let it go now? With B the restart cost in steps,
// X the idle steps that are left and H = B/2 the while, holding gains B - X when
// work comes back within H, and loses H when it does not. (With H of one step it
// would compare the rate at which work comes back with 1/B, and miss work that is
// likely soon but not next; with H of B it mourns what the next sample decides
// better.) A logistic regression says which is the likelier, each case weighted
// with what it gains or loses, so that its even odds are even money. It sees what
// the resource did last (see the features), what share of the fleet works, and how
// long the stretch is already, which is weighed for the class and for the fleet. It
// learns by gradient steps scaled as in Adagrad (Duchi, Hazan, Singer, JMLR 12,
// 2011), once a step for all outcomes that became known in it.
//
// Where there is little history of a resource, its features start from what its
// class did, and those of the class from the fleet. The regression itself starts as
// the break-even rule, and leaves it as far as outcomes speak against it.
type Learned struct {
	step, restart time.Duration
	// breakEven is the restart cost in steps, horizon half of it as a whole number.
	breakEven float64
	horizon   int
	// stride is the distance of the samples of a idle period that are learned from.
	stride int

	histories []history
	classes   []class
	fleet     class
	// working is the share of samples that were busy in the last step, usual the
	// same over the last twenty or so.
	working, usual float64
	weights        [features]weight
	rate           float64
}

// What the regression sees, in order; durations in steps.
const (
	always      = iota
	shareShort  // share of samples that were busy, over about 5
	shareMiddle // 30
	shareLong   // 300
	hazardShort // log odds of work coming back at an idle sample, over about 20
	hazardLong  // 200
	ageLog      // log of the idle samples of this idle period
	busyLog     // log of the length of the busy run before it
	idleLog1    // logs of the lengths of the last three idle periods, the newest first
	idleLog2
	idleLog3
	fleetNow   // share of the fleet that was busy in the step before
	fleetUsual // and lately
	features
)

var featureNames = [features]string{
	"always", "busy share over 5 steps", "busy share over 30 steps", "busy share over 300 steps",
	"return rate over 20 steps", "return rate over 200 steps", "length of this idle period",
	"length of the busy run before",
	"length of the last idle period", "length of the one before", "length of the third last",
	"fleet busy now", "fleet busy lately",
}

// Constants of the learner, chosen on half of the machines of one public trace and
// looked at on the other half. Around them the net saving moves by a point or two of
// a hundred.
const (
	// fastest is the rate of learning at a restart cost of one step. Outcomes of one
	// stretch are alike, and there are the more of them the longer it takes to break
	// even, so the rate falls with the square root of that.
	fastest = 0.25
	// prior is how firmly the break-even rule is held to before there is evidence.
	prior = 0.25
	// priorSamples is the number of the resource's own samples that weigh as much as its class, and
	// priorClass the same for a class and the fleet.
	priorSamples = 5
	priorClass   = 50
	// remembered is the number of samples of an idle period that can wait for their outcome.
	remembered = 16
	maxOdds    = 8 // bound of the log odds
)

var (
	shareMemory  = [...]float64{5, 30, 300}
	hazardMemory = [...]float64{20, 200}
)

// history is the record of one resource.
type history struct {
	class          int
	samples, idles float64
	age, run       int // samples of the open idle period, of the newest busy run
	stretches      [3]int
	shares         [len(shareMemory)]float64
	hazards        [len(hazardMemory)]float64
	waiting        [remembered][features]float32
}

// class counts the outcomes of resources of one class; the fresh counts are of the current step,
// and not used before it is over.
type class struct {
	seen, fresh counts
	// byAge is the weight of the length of the stretch alone.
	byAge [ages]weight
}

type counts struct{ samples, busy, idles, returns float64 }

func (c *counts) add(o counts) {
	c.samples += o.samples
	c.busy += o.busy
	c.idles += o.idles
	c.returns += o.returns
}

// weight is a coefficient and the gradients it was learned from.
type weight struct{ value, squares, gradient float64 }

func (w *weight) learn(rate float64) {
	if g := w.gradient; g != 0 {
		w.squares += g * g
		w.value += rate * g / math.Sqrt(1+w.squares)
		w.gradient = 0
	}
}

// NewLearned starts the learner of the baseline "learned" on a fleet it has seen
// nothing of.
func NewLearned(f Fleet) *Learned {
	l := &Learned{
		step: f.Step, restart: f.RestartCost, breakEven: float64(f.RestartCost) / float64(f.Step),
		histories: make([]history, len(f.Resources)),
	}
	l.horizon = max(1, int(math.Round(l.breakEven/2)))
	l.stride = (l.horizon + remembered - 1) / remembered
	l.rate = fastest / math.Sqrt(max(1, l.breakEven))
	l.weights[always].value = prior * math.Log(1+l.breakEven)
	l.weights[ageLog].value = -prior
	number := map[Class]int{}
	for i, r := range f.Resources {
		name := r.Class()
		n, ok := number[name]
		if !ok {
			n = len(number)
			number[name] = n
		}
		l.histories[i].class = n
	}
	l.classes = make([]class, len(number))
	return l
}

// Begin learns from the outcomes of the step that is over.
func (l *Learned) Begin(time.Time) {
	f := &l.fleet.fresh
	if f.samples == 0 {
		return
	}
	l.working = f.busy / f.samples
	l.usual += (l.working - l.usual) * max(1./20, 1/(1+l.fleet.seen.samples))
	for i := range l.weights {
		l.weights[i].learn(l.rate)
	}
	for i := range l.fleet.byAge {
		l.fleet.byAge[i].learn(l.rate)
	}
	for i := range l.classes {
		c := &l.classes[i]
		for j := range c.byAge {
			c.byAge[j].learn(l.rate)
		}
		c.seen.add(c.fresh)
		c.fresh = counts{}
	}
	l.fleet.seen.add(*f)
	*f = counts{}
}

// Decide learns from the sample and says whether to release now.
func (l *Learned) Decide(s Sample) time.Duration {
	h := &l.histories[s.Resource]
	if h.samples == 0 {
		l.acquaint(h)
	}
	l.observe(h, s)
	if !s.Idle {
		return Never
	}
	if l.restart <= l.step {
		return 0 // a release before work can come back repays the restart
	}
	var x [features]float32
	l.describe(h, &x)
	if (h.age-1)%l.stride == 0 {
		h.waiting[(h.age-1)/l.stride%remembered] = x
	}
	if l.odds(h, h.age, &x) > 0 {
		return Never
	}
	return 0
}

// acquaint starts a history from its class, or from the fleet if the class is new.
func (l *Learned) acquaint(h *history) {
	c, f := &l.classes[h.class].seen, &l.fleet.seen
	busy := (f.busy + 0.5) / (f.samples + 1)
	returns := (f.returns + 0.5) / (f.idles + 1)
	busy = (c.busy + priorClass*busy) / (c.samples + priorClass)
	returns = (c.returns + priorClass*returns) / (c.idles + priorClass)
	for i := range h.shares {
		h.shares[i] = busy
	}
	for i := range h.hazards {
		h.hazards[i] = returns
	}
}

// observe takes a sample into the history of its resource.
func (l *Learned) observe(h *history, s Sample) {
	if s.Gap {
		h.age, h.run = 0, 0 // how the stretch went on is unknown
	}
	n := counts{samples: 1}
	if !s.Idle {
		n.busy = 1
	}
	if h.age > 0 {
		n.idles, n.returns = 1, n.busy
		h.idles++
		for i, m := range hazardMemory {
			h.hazards[i] += (n.busy - h.hazards[i]) * max(1/m, 1/(h.idles+priorSamples))
		}
		l.settle(h, !s.Idle)
	}
	h.samples++
	for i, m := range shareMemory {
		h.shares[i] += (n.busy - h.shares[i]) * max(1/m, 1/(h.samples+priorSamples))
	}
	l.fleet.fresh.add(n)
	l.classes[h.class].fresh.add(n)
	if s.Idle {
		h.age++
		return
	}
	if h.age > 0 {
		h.stretches = [...]int{h.age, h.stretches[0], h.stretches[1]}
		h.age, h.run = 0, 0
	}
	h.run++
}

// settle learns from the samples of the open idle period whose outcome is now known:
// all that wait for it when work is back, else the one a horizon ago.
func (l *Learned) settle(h *history, busy bool) {
	if l.restart <= l.step {
		return
	}
	if !busy {
		if age := h.age + 1 - l.horizon; age >= 1 && (age-1)%l.stride == 0 {
			l.learn(h, age, false, float64(l.horizon)/l.breakEven)
		}
		return
	}
	first := max(1, h.age+1-l.horizon)
	first += (l.stride - (first-1)%l.stride) % l.stride
	for age := first; age <= h.age; age += l.stride {
		gain := 1 - float64(h.age-age+1)/l.breakEven
		l.learn(h, age, gain > 0, math.Abs(gain))
	}
}

// learn adds the gradient of one outcome: whether holding was right, and its worth in restarts.
func (l *Learned) learn(h *history, age int, hold bool, worth float64) {
	x := &h.waiting[(age-1)/l.stride%remembered]
	surprise := -1 / (1 + math.Exp(-l.odds(h, age, x)))
	if hold {
		surprise++
	}
	surprise *= worth
	for i, v := range x {
		l.weights[i].gradient += float64(surprise * float64(v))
	}
	a := ageOf(age)
	l.classes[h.class].byAge[a].gradient += surprise
	l.fleet.byAge[a].gradient += surprise
}

// describe fills in the features of the regression.
func (l *Learned) describe(h *history, x *[features]float32) {
	x[always] = 1
	for i, s := range h.shares {
		x[shareShort+i] = float32(s)
	}
	for i, p := range h.hazards {
		p = 0.005 + 0.99*p
		x[hazardShort+i] = float32(math.Log(p/(1-p)) / 2)
	}
	x[ageLog] = logarithm(h.age)
	x[busyLog] = logarithm(h.run + 1)
	for i, n := range h.stretches {
		x[idleLog1+i] = logarithm(n + 1)
	}
	x[fleetNow], x[fleetUsual] = float32(l.working), float32(l.usual)
}

// odds returns the log odds that holding is better than a release.
func (l *Learned) odds(h *history, age int, x *[features]float32) float64 {
	a := ageOf(age)
	z := l.classes[h.class].byAge[a].value + l.fleet.byAge[a].value
	for i, v := range x {
		// The conversion keeps the product from being fused into the sum, which would
		// make decisions depend on the processor.
		z += float64(l.weights[i].value * float64(v))
	}
	return max(-maxOdds, min(maxOdds, z))
}

// ages is the number of lengths of a stretch that are told apart.
const ages = 16

// ageOf numbers lengths of a stretch: one by one up to four, then twice for every
// doubling.
func ageOf(age int) int {
	if age <= 4 {
		return age - 1
	}
	octave := bits.Len(uint(age)) - 1
	return min(ages-1, 2*octave+age>>(octave-1)&1)
}

var logarithms = func() (t [1024]float32) {
	for n := 1; n < len(t); n++ {
		t[n] = float32(math.Log(float64(n)))
	}
	return t
}()

func logarithm(n int) float32 {
	if n < len(logarithms) {
		return logarithms[n]
	}
	return float32(math.Log(float64(n)))
}

// Weights returns the learned weights, feature by feature, without those of single classes.
func (l *Learned) Weights() []Weight {
	out := make([]Weight, 0, features)
	for i, w := range l.weights {
		out = append(out, Weight{featureNames[i], w.value})
	}
	return out
}

// Weight is the learned weight of one feature: over 0 speaks for keeping an idle resource, under 0
// for releasing it.
type Weight struct {
	Feature string  `json:"feature"`
	Weight  float64 `json:"weight"`
}
