package watchcache

// Changed returns the revision of the last change of an object of this kind. Readers
// compare it to find out whether derived data is still valid.
func (k *Kind) Changed() int64 {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.revision
}
