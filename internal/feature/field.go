package feature

// Field is a part of an object that belongs to a feature.
type Field[T any] struct {
	Gate  string
	Used  func(obj *T) bool
	Clear func(obj *T)
}

// Drop clears the fields of features that are off, unless old, which may be
// nil, uses them already.
func Drop[T any](s *Set, fields []Field[T], obj, old *T) {
	for i := range fields {
		f := &fields[i]
		if f.Used(obj) && !s.Enabled(f.Gate) && (old == nil || !f.Used(old)) {
			f.Clear(obj)
		}
	}
}
