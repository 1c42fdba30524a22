package crowd

import "testing"

func TestOldestIsOfTheLargestGroup(t *testing.T) {
	var c Crowd[string, int]
	if c.Oldest() != nil {
		t.Error("an empty crowd has an oldest member")
	}
	c.Add("small", 1)
	second := c.Add("large", 2)
	c.Add("large", 3)
	if got := c.Oldest(); got != second {
		t.Errorf("the oldest is %d, want 2", got.Member)
	}
	second.Leave()
	second.Leave()
	if c.Len() != 2 || c.LenOf("large") != 1 || c.LenOf("nobody") != 0 {
		t.Errorf("%d members, %d of them in the large group, after one left twice", c.Len(), c.LenOf("large"))
	}
}

func TestEmptyGroupsAreForgotten(t *testing.T) {
	var c Crowd[int, int]
	for i := range 1000 {
		c.Add(i, i).Leave()
	}
	if len(c.groups) != 0 || c.Len() != 0 {
		t.Errorf("%d groups and %d members remain", len(c.groups), c.Len())
	}
	var outside *Place[int, int]
	outside.Leave()
}
