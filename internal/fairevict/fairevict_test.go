package fairevict

import "testing"

func TestVictimIsOldestOfLargestGroup(t *testing.T) {
	var s Set[string, int]
	if s.Victim() != nil {
		t.Error("an empty set has a victim")
	}
	s.Add("small", 1)
	second := s.Add("large", 2)
	s.Add("large", 3)
	if got := s.Victim(); got != second {
		t.Errorf("the victim is %d, want 2", got.Member)
	}
	second.Remove()
	second.Remove()
	if s.Len() != 2 || s.GroupLen("large") != 1 || s.GroupLen("missing") != 0 {
		t.Errorf("%d members, %d of them in the large group, after one was removed twice", s.Len(), s.GroupLen("large"))
	}
}

func TestEmptyGroupsAreDeleted(t *testing.T) {
	var s Set[int, int]
	for i := range 1000 {
		s.Add(i, i).Remove()
	}
	if len(s.groups) != 0 || s.Len() != 0 {
		t.Errorf("%d groups and %d members remain", len(s.groups), s.Len())
	}
	var none *Entry[int, int]
	none.Remove()
}
