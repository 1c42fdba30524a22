package fairevict

import "testing"

func TestLargest(t *testing.T) {
	var s Sizes[string]
	if s.Largest() != nil {
		t.Error("without members there is a largest one")
	}
	small, large := &Size[string]{Member: "small"}, &Size[string]{Member: "large"}
	check := func(total int, want *Size[string]) {
		t.Helper()
		if s.Total() != total || s.Largest() != want {
			t.Errorf("%d in all, the largest is %+v, want %d and %+v", s.Total(), s.Largest(), total, want)
		}
	}
	s.Add(small, 100)
	check(100, small)
	s.Add(large, 10)
	check(110, small)
	s.Add(large, 290)
	check(400, large)
	s.Add(large, 1) // of the same class
	check(401, large)
	s.Set(large, 0)
	s.Set(large, 0)
	check(100, small)
	s.Set(small, 1)
	s.Add(large, 5)
	check(6, large)
	s.Set(large, 0)
	s.Set(small, 0)
	check(0, nil)
}
