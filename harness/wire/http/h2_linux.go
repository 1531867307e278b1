package wirehttp

func (bu *burst) planH2() {}
