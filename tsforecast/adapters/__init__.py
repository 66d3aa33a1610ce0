"""Online learners behind the interfaces of other libraries; each is imported only if asked for."""
