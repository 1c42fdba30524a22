package feature

// Field is a part of an object that belongs to a feature gate.
type Field[T any] struct {
	Gate  Gate
	Used  func(obj *T) bool
	Clear func(obj *T)
}

// Drop clears the fields of obj whose gates are off, except those that old uses
// already. old is nil on create.
func Drop[T any](s *Set, fields []Field[T], obj, old *T) {
	for i := range fields {
		f := &fields[i]
		if f.Used(obj) && !s.Enabled(f.Gate) && (old == nil || !f.Used(old)) {
			f.Clear(obj)
		}
	}
}
