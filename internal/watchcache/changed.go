package watchcache

// Changed is the revision of the last change of an object of this kind. It is
// what a reader compares to know whether something it derived is still true.
func (k *Kind) Changed() int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.revision
}
