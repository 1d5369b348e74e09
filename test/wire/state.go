package wire

import (
	"strings"
	"sync"
	"time"
)

// State is the part of the state of accounts that moto lacks, by account and region.
type State struct {
	mu     sync.RWMutex
	places map[string]*Place
	// products are the Price List's documents, as JSON; spots are spot prices.
	products []Product
	spots    []SpotPrice
	// scores are spot placement scores by machine type.
	scores map[string][]PlacementScore
	costs  map[string][]ServiceCost
	// lifecycles are the documents of buckets, by account and bucket.
	lifecycles map[string]lifecycle
	// analytics are the configurations of Storage Class Analysis, by account and bucket
	// and then by id.
	analytics map[string]map[string][]byte
}

// Place is one account's part of the state in one region.
type Place struct {
	CapacityReservations []CapacityReservation
	ReservedInstances    []ReservedInstances
	SavingsPlans         []SavingsPlan
	Apps                 []App
	SpotRequests         []SpotRequest
	SnapshotLocks        []SnapshotLock
}

// SnapshotLock protects a snapshot from deletion. State is "governance", "compliance",
// "compliance-cooloff" or "expired".
type SnapshotLock struct{ Snapshot, State string }

// SpotRequest is the request of a spot machine. Type is "one-time" or "persistent".
type SpotRequest struct{ ID, Type, State, Instance string }

// CapacityReservation is an On-Demand Capacity Reservation or a Capacity Block.
type CapacityReservation struct {
	ID, InstanceType, Zone, Platform string
	Total, Available                 int
	Created                          time.Time
	// Ends is zero for a reservation without an end.
	Ends  time.Time
	Block bool
	Tags  map[string]string
}

// ReservedInstances is a purchase of reserved machines.
type ReservedInstances struct {
	ID, InstanceType, OfferingType string
	// Zone is empty for a regional purchase.
	Zone         string
	Count        int
	Start        time.Time
	Duration     time.Duration
	FixedPrice   string
	UsagePrice   string
	RecurringUSD string // per hour
	Tags         map[string]string
}

// SavingsPlan is a commitment in dollars per hour.
type SavingsPlan struct {
	ID, Type, Family, Region string
	Commitment               string
	PaymentOption            string
	Upfront, Recurring       string
	Start, End               time.Time
	Tags                     map[string]string
}

// App is a SageMaker Studio application.
type App struct {
	Domain, User, Space, Type, Name, InstanceType string
	Created                                       time.Time
	// Active is when it was last used; zero if unknown.
	Active time.Time
	Tags   map[string]string
}

func (a App) arn(c *Call) string {
	owner := a.Space
	if owner == "" {
		owner = a.User
	}
	return "arn:aws:sagemaker:" + c.Region + ":" + c.Account + ":app/" + a.Domain + "/" +
		owner + "/" + strings.ToLower(
		a.Type) + "/" + a.Name
}

// document is the common part of the answers of ListApps and DescribeApp.
func (a App) document() map[string]any {
	d := map[string]any{"DomainId": a.Domain, "AppType": a.Type, "AppName": a.Name, "Status": "InService",
		"CreationTime": a.Created, "ResourceSpec": map[string]any{"InstanceType": a.InstanceType}}
	if a.Space != "" {
		d["SpaceName"] = a.Space
	} else {
		d["UserProfileName"] = a.User
	}
	return d
}

// Product is a document of the Price List with its search attributes.
type Product struct {
	ServiceCode string
	Attributes  map[string]string
	Document    string
}

// ServiceCost is the cost of one service for an account in a month, in dollars.
type ServiceCost struct{ Service, USD string }

// SpotPrice is one entry of the spot price history.
type SpotPrice struct {
	Region, InstanceType, Zone, Product, Price string
	Time                                       time.Time
}

func newState() *State {
	return &State{
		places: map[string]*Place{}, lifecycles: map[string]lifecycle{}, analytics: map[string]map[string][]byte{},
	}
}

// At changes an account's part of the state in a region.
func (s *State) At(account, region string, change func(*Place)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := account + "/" + region
	if s.places[k] == nil {
		s.places[k] = &Place{}
	}
	change(s.places[k])
}

// AddProducts adds documents to the Price List.
func (s *State) AddProducts(p ...Product) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.products = append(s.products, p...)
}

// AddSpotPrices adds entries to the spot price history.
func (s *State) AddSpotPrices(p ...SpotPrice) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spots = append(s.spots, p...)
}

// PlacementScore is the spot placement score of a zone.
type PlacementScore struct {
	Region, ZoneID string
	Score          int
}

// SetPlacementScores sets the spot placement scores of a machine type.
func (s *State) SetPlacementScores(machineType string, scores ...PlacementScore) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.scores == nil {
		s.scores = map[string][]PlacementScore{}
	}
	s.scores[machineType] = scores
}

// Bill sets the costs of an account in Cost Explorer.
func (s *State) Bill(account string, costs ...ServiceCost) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.costs == nil {
		s.costs = map[string][]ServiceCost{}
	}
	s.costs[account] = costs
}

func (s *State) place(c *Call) Place {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if p := s.places[c.Account+"/"+c.Region]; p != nil {
		return *p
	}
	return Place{}
}
